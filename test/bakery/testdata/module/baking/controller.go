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

// Package baking holds the controller that bakes what is missing.
package baking

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	applyv1 "example.com/bakery/generated/applyconfiguration/bakery/v1"
	clients "example.com/bakery/generated/clientset/versioned/typed/bakery/v1"
	informers "example.com/bakery/generated/informers/externalversions/bakery/v1"
	listers "example.com/bakery/generated/listers/bakery/v1"
)

const name = "baking-controller"

// Controller keeps as many loaves baked as each bread asks for.
type Controller struct {
	client   clients.BreadsGetter
	informer cache.SharedIndexInformer
	lister   listers.BreadLister
}

// New returns a controller that reads from the informer and writes with the client.
func New(client clients.BreadsGetter, breads informers.BreadInformer) *Controller {
	return &Controller{client, breads.Informer(), breads.Lister()}
}

// Run works until the context ends.
func (c *Controller) Run(ctx context.Context) {
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName](),
		workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{Name: name})
	add := func(bread any) { queue.Add(cache.MetaObjectToName(bread.(metav1.Object))) }
	registration, err := c.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    add,
		UpdateFunc: func(_, bread any) { add(bread) },
	})
	if err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "Breads can't be watched")
		return
	}
	var working sync.WaitGroup
	working.Go(func() {
		for {
			key, shutdown := queue.Get()
			if shutdown {
				return
			}
			if err := c.bake(ctx, key); err != nil {
				utilruntime.HandleErrorWithContext(ctx, err, "A bread can't be baked yet", "bread", key)
				queue.AddRateLimited(key)
			} else {
				queue.Forget(key)
			}
			queue.Done(key)
		}
	})
	<-ctx.Done()
	_ = c.informer.RemoveEventHandler(registration)
	queue.ShutDown()
	working.Wait()
}

func (c *Controller) bake(ctx context.Context, key cache.ObjectName) error {
	bread, err := c.lister.Breads(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || bread.Status.Loaves == *bread.Spec.Loaves {
		return err
	}
	status := applyv1.Bread(key.Name, key.Namespace).WithStatus(applyv1.BreadStatus().WithLoaves(*bread.Spec.Loaves))
	_, err = c.client.Breads(key.Namespace).ApplyStatus(ctx, status, metav1.ApplyOptions{FieldManager: name, Force: true})
	return err
}
