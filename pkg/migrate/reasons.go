/*
Copyright The Restaurant API Server Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

	http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package migrate

// Reason names what a Finding is about.
type Reason string

// The reasons of findings, see docs/migration-findings.md.
const (
	NothingDefined          Reason = "NothingDefined"
	DefinitionDeleted       Reason = "DefinitionDeleted"
	NotEstablished          Reason = "NotEstablished"
	NotStored               Reason = "NotStored"
	KindDiffers             Reason = "KindDiffers"
	ScopeDiffers            Reason = "ScopeDiffers"
	NothingServed           Reason = "NothingServed"
	VersionMissing          Reason = "VersionMissing"
	StorageVersionNotServed Reason = "StorageVersionNotServed"
	ConversionWebhook       Reason = "ConversionWebhook"

	LeadsToServer Reason = "LeadsToServer"
	NotManaged    Reason = "NotManaged"

	ServerHasObjects Reason = "ServerHasObjects"
	RevisionTooLow   Reason = "RevisionTooLow"
	ControllersRun   Reason = "ControllersRun"
	UpdateRefused    Reason = "UpdateRefused"

	ObjectsMove      Reason = "ObjectsMove"
	ObjectsRefused   Reason = "ObjectsRefused"
	ObjectsTooLarge  Reason = "ObjectsTooLarge"
	BoundExceeded    Reason = "BoundExceeded"
	FractionsLost    Reason = "FractionsLost"
	NotConverted     Reason = "NotConverted"
	ObjectsInvalid   Reason = "ObjectsInvalid"
	Finalizers       Reason = "Finalizers"
	NamespaceDeleted Reason = "NamespaceDeleted"

	Webhooks Reason = "Webhooks"
	Policies Reason = "Policies"

	DefinitionsNotKept Reason = "DefinitionsNotKept"
	DefinitionShown    Reason = "DefinitionShown"

	// Only plans of the way back have these.
	NotMoved      Reason = "NotMoved"
	NotRegistered Reason = "NotRegistered"
	Encrypted     Reason = "Encrypted"
	NewUIDs       Reason = "NewUIDs"
	Quotas        Reason = "Quotas"
	// ObjectsUndefined are at the server, whose definition is gone.
	ObjectsUndefined Reason = "ObjectsUndefined"
	// OtherEtcd is also a finding of "finish".
	OtherEtcd Reason = "OtherEtcd"

	// Only plans of "finish" have these.
	NotEnded        Reason = "NotEnded"
	CopiesFinalized Reason = "CopiesFinalized"
	CopiesUsed      Reason = "CopiesUsed"
	VersionNotMoved Reason = "VersionNotMoved"
	CopiesWritten   Reason = "CopiesWritten"
	CopiesDeleted   Reason = "CopiesDeleted"
)
